"""Where a log or a lake is: a local path, a URI of pyarrow.fs, or object storage (S3), which has no folders."""
