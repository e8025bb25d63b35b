"""The program of a call that departs outside its graphs, made smaller."""
