"""The formats that Spark finds, put together from the rooms beside this one."""
