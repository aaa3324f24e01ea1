"""The executable specification of KIP-858: standard library only, plain before fast."""
