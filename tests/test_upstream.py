"""Faults of what the course stands on, and what each costs us: when one is gone, that can go as well."""

import os
import subprocess
import sys

import pytest
from jupyter_client.manager import KernelManager


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the C locale has other letters")
def test_python_cannot_start_beside_a_path_that_its_locale_lacks(tmp_path):
    """Before Python 3.13, site reads .pth files in the locale's encoding.

    Costs: INSTALL_COURSE in the Makefile, and a sentence in README's part on other environments. They can go
    when the course no longer supports the Pythons that this test finds at fault.
    """
    (tmp_path / "course.pth").write_text("/Ünï cödé folder\n", encoding="utf-8")
    code = f"import site; site.addsitedir({str(tmp_path)!r})"
    environment = os.environ | {"LC_ALL": "C"}
    environment.pop("PYTHONUTF8", None)
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ("UnicodeDecodeError" in ran.stderr) == (sys.version_info < (3, 13))


def test_jupyter_does_not_encrypt_what_kernels_send_unless_told():
    """Costs: transport_encryption in helpers/jupyter_config, and what README says of shared computers."""
    assert KernelManager.transport_encryption.default_value == "disabled"


def test_jupyter_without_a_place_to_write_ends_in_a_traceback(tmp_path):
    """Costs: need_jupyters_folders in helpers/__main__.py."""
    (tmp_path / "file").touch()
    folders = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA")}
    environment = os.environ | folders | {"JUPYTER_RUNTIME_DIR": str(tmp_path / "file" / "folder")}
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        f"--notebook-dir={tmp_path}",
    ]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode != 0
    assert ran.stderr.count("Traceback") >= 1
