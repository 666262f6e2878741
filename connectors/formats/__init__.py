"""The formats that Spark finds, assembled from the folders beside this one."""
