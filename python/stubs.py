"""Writes topoctl/documents.pyi: the types of what the package gives, from the schemas of the documents.

A document of the program is a Record: keys that are always there are attributes, others are for get().
What the engine says is a dict, of a TypedDict."""

import contextlib
import json
import keyword
import pathlib

ROOT = pathlib.Path(__file__).parent.parent
RECORDS = ["discover/topo/topology", "discover/topo/matrix", "pathsel/path", "pathsel/plan", "pathsel/doctor/doctor"]
DICTS = ["internal/agent/engine", "engine/explain"]
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
HEAD = '''# mypy: disable-error-code="override"
"""Types of documents, for annotations: import it where typing.TYPE_CHECKING."""

from typing import Any, Dict, List, Literal, Mapping, Optional, Tuple, TypedDict, Union, overload
from typing_extensions import NotRequired
from ._program import Document, Record
'''


class Stubs:
    def __init__(self, schema, record):
        self.schema, self.record = schema, record
        self.classes = {}  # what was printed, by what is in it

    def type(self, schema, name):
        """A schema as an annotation; objects in it become classes, whose names begin with that name."""
        if "$ref" in schema:
            key = schema["$ref"].rpartition("/")[2]
            return self.type(self.schema["$defs"][key], name)
        if "anyOf" in schema:
            return union(self.type(part, name) for part in schema["anyOf"])
        if "oneOf" in schema:
            print(f"\n{name} = {union(self.type(part, name) for part in schema['oneOf'])}")
            return name
        if "const" in schema:
            return f"Literal[{schema['const']!r}]"
        if "enum" in schema:  # more may come
            return union("None" if value is None else type(value).__name__ for value in schema["enum"])
        kind = schema.get("type", "Any")
        if isinstance(kind, list):
            return union(self.type({**schema, "type": one}, name) for one in kind)
        if kind == "array":
            item = self.type(schema.get("items", {}), name)
            return f"Tuple[{item}, ...]" if self.record else f"List[{item}]"
        if "properties" in schema:
            return self.object(schema, name)
        if kind == "object":
            values = schema.get("additionalProperties", {})
            return f"{'Mapping' if self.record else 'Dict'}[str, {self.type(values, name)}]"
        return PLAIN.get(kind, "Any")

    def object(self, schema, name, base="Record"):
        fields = schema["properties"]
        kind = fields.get("kind", {}).get("const", "")  # of a node
        name = name.replace("Nodes", "") + camel(kind)
        types = {key: self.type(value, name.replace("Document", "") + camel(key)) for key, value in fields.items()}
        required = {key: types[key] for key in types if key in schema.get("required", ())}
        rest = {key: types[key] for key in types if key not in required}
        if not self.record:
            rows = [f'"{key}": {type}' for key, type in required.items()]
            rows += [f'"{key}": NotRequired[{type}]' for key, type in rest.items()]
            body = ", ".join(rows)
            if body not in self.classes:
                self.classes[body] = name
                print(f'{name} = TypedDict("{name}", {{{body}}})')
            return self.classes[body]
        rows = [f"    {key}: {type}" for key, type in required.items() if not keyword.iskeyword(key)]
        rows += [*overloads("__getitem__", required), *overloads("get", {key: union([type, "None"]) for key, type in rest.items()})]
        body = "\n".join(rows)
        if body not in self.classes:
            self.classes[body] = name
            print(f"\nclass {name}({base}):\n{body}")
        return self.classes[body]


def overloads(method, types):
    """A method that takes these keys and no others."""
    keys = {}
    for key, type in types.items():
        keys.setdefault(type, []).append(key)
    head = "    @overload\n" if len(keys) > 1 else ""
    for type, names in keys.items():
        yield f"{head}    def {method}(self, key: Literal[{', '.join(map(repr, names))}]) -> {type}: ..."


def union(types):
    types = list(dict.fromkeys(types))
    if "None" in types and len(types) == 2:
        types.remove("None")
        return types[0] if types[0].startswith("Optional[") else f"Optional[{types[0]}]"
    return types[0] if len(types) == 1 else f"Union[{', '.join(types)}]"


def camel(key):
    return "".join(word.title() for word in key.replace("-", "_").split("_"))


def main():
    print(HEAD)
    for document in RECORDS + DICTS:
        room, _, name = document.rpartition("/")
        schema = json.loads((ROOT / room / "schema" / f"{name}.v1.schema.json").read_text())
        stubs = Stubs(schema, document in RECORDS)
        stubs.object(schema, camel(name) + "Document", "Document")
        if name == "matrix":
            grids = {key: grid for key, grid in schema["properties"].items() if "items" in grid.get("items", ())}
            cells = {key: grid["items"]["items"] for key, grid in grids.items()}
            stubs.object({"properties": cells, "required": schema["required"]}, "MatrixPair")


if __name__ == "__main__":
    with open(ROOT / "python" / "topoctl" / "documents.pyi", "w") as out, contextlib.redirect_stdout(out):
        main()
