package session

// Files is how many handles this process may have, which has no limit that matters.
func Files() int { return 1 << 24 }
