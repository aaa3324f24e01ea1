"""Many clusters at once: their file, their replays in one session, and questions to all of their lakes."""
