"""The broker's half of directory assignment: events in, actions out; nothing here reads a clock or a network."""
