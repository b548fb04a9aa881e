package serve

// Settings gives the published ones to tests.
func Settings() []Params { return published }
