"""Seal, decode and verify envelope.json with the core as PL/Python loads it.

Usage: /usr/bin/python3 tests/vectors/check_core.py CORE_DIRECTORY envelope.json

Prints the number of vectors that held; fails with a traceback at the first that does not.
"""

import importlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def load_core(directory: Path) -> Any:
    """Load the package from its files under a private name, as oml.load_core() does."""
    spec = importlib.util.spec_from_file_location(
        "_oml_core", directory / "__init__.py", submodule_search_locations=[str(directory)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_oml_core"] = module
    spec.loader.exec_module(module)
    for part in (
        "cbor",
        "cose",
        "envelope",
        "keys",
        "merkle",
        "note",
        "wire",
        "signer",
        "seal",
        "chain",
        "proof",
    ):
        importlib.import_module(f"_oml_core.{part}")
    return module


def main() -> None:
    """Check every vector."""
    core = load_core(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as directory:
        check(core, Path(directory) / "signing.key")


def check(core: Any, key_file: Path) -> None:
    """Seal every vector with its key in ``key_file``, decode and verify it."""
    document = json.loads(Path(sys.argv[2]).read_bytes())
    key = core.keys.from_seed(bytes.fromhex(document["seed"]))
    assert key.public_key.hex() == document["public_key"]
    core.keys.write_new(str(key_file), core.keys.to_pem(bytes.fromhex(document["seed"])).encode())
    sealer = core.seal.sealer(f"file:{key_file}", None, key.kid)
    required = [bytes(16), bytes(16), 1, bytes(32), "t.t", 1, "{}", "w", "p", "a"]
    event_id, now, digest, data = sealer.seal(*required, *[None] * 8, "none", "on")
    sealed = core.envelope.decode(data)
    assert (sealed.hash, sealed.fields["occurred_at"]) == (digest, now)
    assert sealed.fields["event_id"].hex() == event_id
    assert core.cose.verify(sealed.sign1, key.public_key)
    for vector in document["vectors"]:
        fields = {
            column: bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
            for column, value in vector["fields"].items()
        }
        data = core.envelope.encode(fields, key.kid, key.secret_key)
        digest = core.envelope.digest(data)
        assert data.hex() == vector["envelope"]
        assert digest.hex() == vector["hash"]
        decoded = core.envelope.decode(data)
        assert decoded.fields == fields
        assert decoded.hash == digest
        assert core.cose.verify(decoded.sign1, key.public_key)
        spoiled = core.envelope.decode(data[:-1] + bytes((data[-1] ^ 1,)))
        assert not core.cose.verify(spoiled.sign1, key.public_key)
    print(len(document["vectors"]))


if __name__ == "__main__":
    main()
