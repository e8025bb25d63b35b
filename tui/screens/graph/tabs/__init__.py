"""What the graph screen shows of one node: Detail, Source, Code, IR, Near. Mounted beside the table; shows, decides
nothing.

For example:

    tabs = NodeTabs(saved, view)
    tabs.show_node(57); tabs.step(1)
"""
