"""What a release consists of, made and checked by one command: ``make release``."""
