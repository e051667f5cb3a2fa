"""The checks of this repository's structure: directions of imports, and requirements tied to tests."""
