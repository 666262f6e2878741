"""Values of records decoded into typed columns in the worker: ``valueFormat=json``."""
