"""One module for each stage, `run(work, pipeline)`; the list is `stage.STAGES`."""
