"""Records: the bytes of a record and its envelope, and the kernels that work on whole blocks of them. No files."""
