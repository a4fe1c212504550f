"""A system's base backup and WAL archive, and the system as it was at a point."""

import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from lakes import PATIENCE_S, value
from systems import System


class Backups:
    """Takes a base backup of the system's cluster when entered, and archives its WAL from then on.

    The cluster must be the test's own: it is restarted, with its gate opened again.
    """

    def __init__(self, system: System, directory: Path) -> None:
        self.system = system
        self.directory = directory
        self.archive_dir = directory / "archive"
        self._restored: list[System] = []

    def __enter__(self) -> Self:
        self.directory.mkdir(mode=0o755)
        self.system.cluster.account.make_directory(self.archive_dir)
        for setting in ("archive_mode = on", f"archive_command = 'cp %p {self.archive_dir}/%f'"):
            self.system.superuser.execute(f"alter system set {setting}".encode())
        self.system.superuser.close()
        self.system.cluster.stop()
        self.system.cluster.start()
        self.system.open_gate()
        self.copy = self.system.cluster.standby(self.directory / "copy")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for restored in self._restored:
            restored.close()
        self.copy.destroy()

    def mark(self) -> None:
        """Note this point, to which ``restore`` goes back."""
        self.system.superuser.execute("select pg_create_restore_point('mark')")

    def archive(self) -> None:
        """Wait until all WAL up to now lies in the archive."""
        last = value(self.system.superuser, "select pg_walfile_name(pg_switch_wal())")
        deadline = time.monotonic() + PATIENCE_S
        while not (self.archive_dir / last).exists():
            assert time.monotonic() < deadline, f"{last} was never archived"
            time.sleep(0.02)

    def restore(self, *, to_mark: bool = True) -> System:
        """Start the backup, recovered to the mark, or else to the end of the archive.

        It is another cluster on the same lake.
        """
        (self.copy.data / "standby.signal").unlink()
        owner = self.copy.account
        signal = self.copy.data / "recovery.signal"
        signal.touch()
        shutil.chown(signal, owner.uid, owner.gid)
        with (self.copy.data / "postgresql.auto.conf").open("a") as conf:
            conf.write(f"archive_mode = off\nrestore_command = 'cp {self.archive_dir}/%f %p'\n")
            if to_mark:
                conf.write("recovery_target_name = 'mark'\nrecovery_target_action = 'promote'\n")
        self.copy.start()
        restored = System(self.copy, self.system.database, self.system.lake)
        self._restored.append(restored)
        deadline = time.monotonic() + PATIENCE_S
        while value(restored.superuser, "select pg_is_in_recovery()"):
            assert time.monotonic() < deadline, "the recovery never ended"
            time.sleep(0.02)
        return restored
