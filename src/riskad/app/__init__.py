"""One file for each thing a person does with tables and models, and ways to show the result."""
