"""The rooms that need live graphs: recording, replay, triage, blame, the compile path and pictures."""
