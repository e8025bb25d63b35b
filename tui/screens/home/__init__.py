"""Home: the runs here, their compiles and graphs, minifications and jobs, with what is known of the line under the
cursor."""
