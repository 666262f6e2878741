"""One stateless SELECT over the records of a batch, run on Arrow in the worker."""
