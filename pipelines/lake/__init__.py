"""The Delta tables: schemas, publishing, the ledger."""
