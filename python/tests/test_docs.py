"""The examples of docs/python.md run."""

import contextlib
import io
import pathlib
import re
import unittest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"


class TestExamples(unittest.TestCase):
    def test_python(self):
        examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.M | re.S)
        said, names = io.StringIO(), {}
        with contextlib.redirect_stdout(said):
            for example in examples:
                exec(example, names)
        for words in "('mlx5_0',) 12500000000 nearest usable port", "page 7", "12000)]":
            self.assertIn(words, said.getvalue())


if __name__ == "__main__":
    unittest.main()
