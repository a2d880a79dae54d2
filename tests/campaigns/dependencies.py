"""Dependencies of the lock file: licences, versions, and a software bill of materials (CycloneDX JSON).

    python tests/campaigns/dependencies.py [--lock requirements.lock] [--sbom FILE]

Known vulnerabilities need a database on another host (pip-audit); where it can't be reached, versions and licences
remain. The exit status is 1 where an installed version is not the pinned one, or a licence is one that a library under
MIT should not depend on.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

UNFIT = re.compile(r"\b(AGPL|Affero|SSPL|Commons Clause)\b", re.IGNORECASE)


def pinned(lock: Path) -> dict[str, str]:
    """Names and versions of a lock file."""
    lines = (line.split("#")[0].split(";")[0].strip() for line in lock.read_text("utf-8").splitlines())
    pairs = (line.split("==", 1) for line in lines if "==" in line)
    return {name.split("[")[0].strip().lower(): version.strip() for name, version in pairs}


def component(name: str, version: str) -> dict[str, Any]:
    """A package as CycloneDX describes it; without a licence where it is not installed."""
    found: dict[str, Any] = {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
    text = licence(name)
    return {**found, "bom-ref": found["purl"], **({"licenses": [{"license": {"name": text}}]} if text else {})}


def licence(name: str) -> str:
    """The licence that a package's metadata names, or "" without any."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    listed = [line.split(" :: ")[-1] for line in about.get_all("Classifier") or () if line.startswith("License ::")]
    stated = about.get("License-Expression") or ", ".join(listed) or (about.get("License") or "").strip()
    return " ".join(str(stated).split())[:100]


def problems(pins: dict[str, str]) -> list[str]:
    """What is wrong with the installed packages, in words."""
    found = []
    for name, version in pins.items():
        try:
            here = metadata.version(name).split("+")[0]
        except metadata.PackageNotFoundError:
            continue  # of another platform
        if here != version.split("+")[0]:
            found.append(f"{name}: {here} is installed, {version} is pinned")
        if UNFIT.search(licence(name)):
            found.append(f"{name}: licence {licence(name)}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lock", type=Path, default=Path(__file__).parents[2] / "requirements.lock")
    parser.add_argument("--sbom", type=Path, help="where to write the bill of materials")
    options = parser.parse_args()
    pins = pinned(options.lock)
    for name, version in sorted(pins.items()):
        print(f"{name:<32}{version:<16}{licence(name) or 'unknown'}")
    if options.sbom is not None:
        components = [component(name, version) for name, version in sorted(pins.items())]
        bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}
        options.sbom.write_text(json.dumps(bill, indent=1) + "\n", "utf-8")
    found = problems(pins)
    for problem in found:
        print(problem, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
