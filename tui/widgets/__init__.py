"""Parts that screens are made of; each knows textual and no file of a run."""
