"""The supply check: licences and known vulnerabilities of the packages that constraints.txt pins.

    python tests/supply.py

Licences come from the metadata of installed packages. Vulnerabilities come from pip-audit, where it is installed and
reaches its database. What could not be checked is named: the exit code is 1 after a finding, 2 where something was not
checked, else 0.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
# Licences that allow use, change and redistribution beside our Apache-2.0. MPL-2.0 asks for its own files alone.
ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "MPL-2.0",
        "PSF-2.0",
        "Zlib",
    }
)
EXCEPTIONS = frozenset({"LLVM-exception"})
SPDX = {  # what older metadata says -> its name
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The MIT License (MIT)": "MIT",
}
AUDIT_S = 300.0


def pins() -> dict[str, str]:
    """Name -> version of every package that constraints.txt pins."""
    lines = (line.partition(";")[0].strip() for line in CONSTRAINTS.read_text().splitlines())
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def licence(package: metadata.PackageMetadata) -> str:
    """The licence in a package's metadata: an SPDX expression, else its own words; empty without any."""
    fields = dict(package.items())
    if expression := fields.get("License-Expression"):
        return expression
    texts = [text for text in package.get_all("Classifier") or () if text.startswith("License ::")]
    names = [text.split(" :: ")[-1] for text in texts]
    names = names or (fields.get("License") or "").strip().splitlines()[:1]
    return " AND ".join(SPDX.get(name, name) for name in names)


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression is on the allow-list: all its parts, or one of those that an OR joins."""
    words = re.split(r"\s+(AND|OR|WITH)\s+|[()]", expression.strip())
    words = [word for word in words if word and word.strip()]
    if "OR" in words and not {"AND", "WITH"} & set(words):
        return any(word in ALLOWED for word in words)
    after_with = {place + 1 for place, word in enumerate(words) if word == "WITH"}
    return bool(words) and all(
        word in EXCEPTIONS if place in after_with else word in ALLOWED
        for place, word in enumerate(words)
        if word not in ("AND", "OR", "WITH")
    )


def licences() -> tuple[dict[str, str], list[str]]:
    """Packages with a licence that is not on the list, each with it; and the pins that are not installed here."""
    refused, missing = {}, []
    for name in pins():
        try:
            found = licence(metadata.metadata(name))
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if not is_allowed(found):
            refused[name] = found or "none is named"
    return refused, missing


def vulnerabilities(command: list[str] | None) -> tuple[list[str], list[str]]:
    """Known vulnerabilities of the pinned versions, and what was not checked with the reason.

    Args:
        command: begins a call of pip-audit; None where it is not installed.
    """
    if command is None:
        return [], ["vulnerabilities: pip-audit is not installed. Install it outside this environment, as by pipx"]
    words = [*command, "--requirement", str(CONSTRAINTS), "--no-deps", "--disable-pip", "--format", "json"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=AUDIT_S, check=False)
        found = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return [], [f"vulnerabilities: no answer within {AUDIT_S:g} s"]
    except (ValueError, KeyError, TypeError):  # no report: it does not reach its database, or does not know the options
        reason = (done.stderr.strip().splitlines() or ["it printed no report"])[-1]
        return [], [f"vulnerabilities: pip-audit ended with {done.returncode}: {reason}"]
    known = [
        f"{each['name']} {each['version']}: {one['id']}, fixed in {', '.join(one['fix_versions']) or 'no version'}"
        for each in found
        for one in each.get("vulns", ())
    ]
    skipped = [f"vulnerabilities of {each['name']}: {each['skip_reason']}" for each in found if "skip_reason" in each]
    seen = {re.sub(r"[-_.]+", "-", each["name"]).lower() for each in found}
    lacking = [name for name in pins() if re.sub(r"[-_.]+", "-", name).lower() not in seen]
    return known, skipped + [f"vulnerabilities of {name}: pip-audit does not list it" for name in lacking]


def main() -> int:
    """Print what was found, and what was not checked."""
    refused, missing = licences()
    audit = shutil.which("pip-audit")
    known, unchecked = vulnerabilities([audit] if audit else None)
    if missing:
        unchecked.insert(0, f"licences of {', '.join(missing)}: not installed here")
    findings = [*(f"licence of {name}: {found}" for name, found in refused.items()), *known]
    print(f"{len(pins()) - len(missing)} licences read, {len(refused)} not on the list")
    print("\n".join([*(f"FOUND: {each}" for each in findings), *(f"not checked: {each}" for each in unchecked)]))
    return 1 if findings else (2 if unchecked else 0)


if __name__ == "__main__":
    sys.exit(main())
