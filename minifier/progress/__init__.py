"""How a minification is shown as it goes on: `story` knows it, `live` draws it on a terminal, `plain` writes lines
elsewhere."""
