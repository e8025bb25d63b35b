"""How a minification is shown while it goes on: `model` counts, `live` draws it on a terminal, `plain` writes lines elsewhere."""
