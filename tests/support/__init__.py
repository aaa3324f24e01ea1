"""What tests share: readers, lakes, worlds and other engines."""
