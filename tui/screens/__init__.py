"""A folder per screen, with its keys and parts; sheets, which stand in front of one, are files."""
