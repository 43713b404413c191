"""What the tests of the command line share: graphs and arrays as files, and the call of sinter."""
import json, os, struct, subprocess, sys, tempfile, unittest

SINTER = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "sinter"
# A driver without a GPU, whose launches take 5 us each; built with the unit tests.
FAKE_DRIVER = os.path.join(os.path.dirname(SINTER), "..", "..", "tests", "libsinter_fake_driver.so")


def graph(tensors, *nodes, **top):
    return {"format": "sinter.graph", "version": 1, "name": "g", **top, "tensors": tensors, "nodes": list(nodes)}


def pointwise(mode, out, *inputs, **attributes):
    return {"op": "pointwise", "mode": mode, **attributes, "outputs": {"OUT_0": out},
            "inputs": {f"IN_{i}": t for i, t in enumerate(inputs)}}


def npy(descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


class CommandLineCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name, content=None):
        path = os.path.join(self.folder.name, name)
        if content is not None:
            with open(path, "wb") as f:
                f.write(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    def sinter(self, *arguments, code=0):
        done = subprocess.run([SINTER, *arguments], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for line in done.stderr.splitlines() if code else []:
            self.assertTrue(line.startswith(("error: ", "note: ", "    ")), line)
        return done
