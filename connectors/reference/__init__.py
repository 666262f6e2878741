"""All options of all formats: for the pages made from them, typed builders and hints in errors."""
