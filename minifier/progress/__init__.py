"""How a minification is shown as it goes on: `telling` words it, `plain` draws it on a terminal or writes lines,
`watched` follows its folder."""
