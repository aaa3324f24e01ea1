"""A broker's log directories: meta.properties, directory ids, formatting and the checks at start."""
