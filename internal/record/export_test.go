package record

import "slices"

// EngineSchema is what is left of the schema of an Engine for the fields that a record has.
func EngineSchema(of map[string]any) map[string]any { return kept(of, engineFields) }

func kept(schema map[string]any, fields []field) map[string]any {
	switch {
	case len(fields) == 0:
		return schema
	case schema["type"] == "array":
		return map[string]any{"type": "array", "items": kept(schema["items"].(map[string]any), fields)}
	}
	all, must := schema["properties"].(map[string]any), schema["required"].([]string)
	properties, required := map[string]any{}, []string{}
	for _, f := range fields {
		properties[f.name] = kept(all[f.name].(map[string]any), f.of)
		if slices.Contains(must, f.name) {
			required = append(required, f.name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}
