"""Memory and numbers of other objects."""

import array
import ctypes
import mmap
import unittest

import topoctl
from topoctl._buffers import destination, memory_of, table, vector

try:
    import numpy
except ImportError:
    numpy = None

needs_numpy = unittest.skipIf(numpy is None, "numpy is not installed")


def numbers(v, code="Q"):
    """What the library sees."""
    return list(array.array(code, ctypes.string_at(v.address, 8 * v.count))) if v.count else []


class Tensor:
    """A torch tensor as far as topoctl knows it."""

    def __init__(self, memory, contiguous=True):
        self.memory = memory
        self.contiguous = contiguous

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def numel(self):
        return len(self.memory) // 4

    def element_size(self):
        return 4

    def is_contiguous(self):
        return self.contiguous


class TestMemory(unittest.TestCase):
    def test_buffers(self):
        block = (ctypes.c_uint16 * 8)(*range(8))
        at = ctypes.addressof(block)
        for thing, want in (
            (block, (at, 16)),
            (memoryview(block), (at, 16)),
            (memoryview(block).cast("B")[4:10], (at + 4, 6)),
            (Tensor(block), (at, 8)),
        ):
            self.assertEqual(topoctl.range_of(thing), want)
            self.assertTrue(memory_of(thing).writable)

    def test_contents(self):
        with mmap.mmap(-1, 4096) as mapped:
            mapped[:4] = b"mmap"
            for thing, want in (
                (b"bytes", b"bytes"),
                (bytearray(b"array"), b"array"),
                (array.array("H", [1, 2]), b"\1\0\2\0"),
                (memoryview(mapped)[:4], b"mmap"),
            ):
                where = topoctl.range_of(thing)
                self.assertEqual(ctypes.string_at(where.address, where.length), want)
                del thing

    def test_read_only_is_no_destination(self):
        for thing in b"abc", memoryview(bytearray(3)).toreadonly():
            with self.assertRaisesRegex(TypeError, "read-only"):
                destination(memory_of(thing))

    def test_refused(self):
        for thing in 3, "text", None, [1, 2], object():
            with self.assertRaisesRegex(TypeError, type(thing).__name__):
                memory_of(thing)
        for thing in memoryview(bytearray(8))[::2], Tensor((ctypes.c_ubyte * 8)(), False):
            with self.assertRaisesRegex(ValueError, "not contiguous"):
                memory_of(thing)

    def test_a_reference_keeps_the_size(self):
        buffer = bytearray(8)
        memory = memory_of(buffer)
        with self.assertRaises(BufferError):
            buffer.append(1)
        del memory
        buffer.append(1)

    @needs_numpy
    def test_numpy(self):
        a = numpy.arange(24, dtype=numpy.float32).reshape(4, 6)
        self.assertEqual(topoctl.range_of(a), (a.ctypes.data, 96))
        self.assertEqual(topoctl.range_of(a[1:3]), (a.ctypes.data + 24, 48))
        for view in a[:, 1:3], a.T:
            with self.assertRaisesRegex(ValueError, "not contiguous"):
                memory_of(view)
        a.flags.writeable = False
        self.assertFalse(memory_of(a).writable)
        dates = numpy.zeros(3, "datetime64[s]")  # which the buffer protocol does not know
        self.assertEqual(topoctl.range_of(dates), (dates.ctypes.data, 24))
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            memory_of(numpy.zeros(6, "datetime64[s]")[::2])

    def test_device_memory(self):
        class OnDevice:
            __cuda_array_interface__ = {
                "data": (0x7F0000000000, False),
                "shape": (2, 3),
                "typestr": "<f8",
                "strides": None,
                "version": 3,
            }

        self.assertEqual(topoctl.range_of(OnDevice()), (0x7F0000000000, 48))


class TestNumbers(unittest.TestCase):
    def test_lists(self):
        for given in ([1, 2, 3], (1, 2, 3), range(1, 4), array.array("B", [1, 2, 3])):
            self.assertEqual(numbers(vector(given, "Q")), [1, 2, 3])
        self.assertEqual(vector([], "Q").count, 0)
        self.assertEqual(numbers(vector([2**64 - 1], "Q")), [2**64 - 1])
        self.assertEqual(numbers(vector([-1], "q"), "q"), [-1])

    def test_no_copy(self):
        given = array.array("Q", range(1000))
        self.assertEqual(vector(given, "Q").address, given.buffer_info()[0])
        self.assertEqual(vector(given, "q").address, given.buffer_info()[0])

    def test_refused(self):
        for given in ["a"], [1.5], [None], 3, "12", None:
            with self.assertRaises(TypeError):
                vector(given, "Q")
        for given in [-1], [2**64]:
            with self.assertRaises(ValueError):
                vector(given, "Q")

    @needs_numpy
    def test_numpy(self):
        a = numpy.arange(10, dtype=numpy.int64)
        self.assertEqual(vector(a, "q").address, a.ctypes.data)
        self.assertEqual(numbers(vector(a[::3], "q"), "q"), [0, 3, 6, 9])
        self.assertEqual(numbers(vector(a.astype(numpy.int32), "q"), "q"), list(range(10)))
        with self.assertRaises(TypeError):
            vector(a.astype(float), "q")
        with self.assertRaisesRegex(ValueError, "one dimension"):
            vector(a.reshape(2, 5), "q")

    @needs_numpy
    def test_tables(self):
        a = numpy.arange(12, dtype=numpy.uint64).reshape(4, 3)
        t = table(a)
        at = a.ctypes.data
        self.assertEqual((t.addresses, t.lengths, t.count, t.stride), (at, at + 8, 4, 3))
        self.assertEqual(table(a[:, :2].copy()).stride, 2)
        for wrong in a[:, :1], a.astype(numpy.uint32), a[:, :2], numpy.arange(6, dtype="u8"):
            with self.assertRaisesRegex(ValueError, "table"):
                table(wrong)
        with self.assertRaisesRegex(ValueError, "2 addresses and 1 lengths"):
            table([1, 2], [1])


if __name__ == "__main__":
    unittest.main()
