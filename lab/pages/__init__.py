"""The files that are generated from declarations in the code: `python -m lab.pages CHECKOUT` writes them."""
