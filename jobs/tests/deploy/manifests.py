"""Asks the schemas of Kubernetes about what an overlay makes. Whatever a fault is, it ends with 1 and says so.

    manifests.py check OLDEST OVERLAY          by each version from OLDEST on that kubernetes-validate knows; unknown keys are faults
    manifests.py compare OVERLAY <DOCUMENTS    whether these, of kustomize itself, are what the overlay makes here

Kustomize is not needed: what these files use of it is done here, and anything else in them is refused.
"""

import copy
import pathlib
import re
import sys

import kubernetes_validate
import yaml

# Of these lists the one entry with the same name is changed.
BY_NAME = {"containers", "env"}
WITHOUT_NAMESPACE = {"Namespace"}


class Fault(Exception):
    pass


def read(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def render(folder):
    """What kustomize makes of the folder, but for the hash at the end of the name of a ConfigMap."""
    (asked,) = read(folder / "kustomization.yaml")
    asked = {key: value for key, value in asked.items() if key not in ("apiVersion", "kind")}
    documents = []
    for name in asked.pop("resources"):
        path = folder / name
        documents += render(path.resolve()) if path.is_dir() else read(path)
    for made in asked.pop("configMapGenerator", []):
        data = {}
        for file in made["files"]:
            key, source = file.split("=")
            data[key] = (folder / source).read_text()
        documents.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": made["name"]}, "data": data})
    namespace = asked.pop("namespace", None)
    for document in documents:
        if namespace and document["kind"] not in WITHOUT_NAMESPACE:
            document["metadata"]["namespace"] = namespace
    for image in asked.pop("images", []):
        for document in documents:
            name_image(document, image)
    for patch in asked.pop("patches", []):
        change(documents, folder, patch)
    if asked:
        raise Fault(f"{folder}: this does not know {', '.join(asked)}")
    return documents


def name_image(value, image):
    if isinstance(value, dict):
        if value.get("image") == image["name"]:
            value["image"] = f"{image['newName']}:{image['newTag']}"
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            name_image(inner, image)


def change(documents, folder, patch):
    if "path" in patch:
        for change in read(folder / patch["path"]):
            document = one(documents, change["kind"], change["metadata"]["name"])
            if document["apiVersion"] != change["apiVersion"]:
                raise Fault(f"{folder}: {change['kind']} of {change['apiVersion']} is not that of {document['apiVersion']}")
            merge(document, change)
        return
    document = one(documents, patch["target"]["kind"], patch["target"]["name"])
    for step in yaml.safe_load(patch["patch"]):
        if step["op"] != "add" or not step["path"].endswith("/-"):
            raise Fault(f"{folder}: this does not know {step['op']} {step['path']}")
        place = document
        for key in step["path"].split("/")[1:-1]:
            place = place[key]
        place.append(step["value"])


def one(documents, kind, name):
    found = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
    if len(found) != 1:
        raise Fault(f"{len(found)} of kind {kind} are called {name}")
    return found[0]


def merge(into, change):
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        elif key in BY_NAME and key in into:
            for entry in value:
                same = [old for old in into[key] if old["name"] == entry["name"]]
                if same:
                    merge(same[0], entry)
                else:
                    into[key].append(entry)
        else:
            into[key] = copy.deepcopy(value)


def check(oldest, documents):
    known = dict.fromkeys(kubernetes_validate.utils.all_versions())
    newer = [version for version in known if number(version) >= number(oldest)]
    if not newer or number(newer[0])[:2] != number(oldest):
        raise Fault(f"there is no schema for {oldest}")
    for version in newer:
        for document in documents:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as fault:
                where = ".".join(str(step) for step in fault.path)
                raise Fault(f"{document['kind']} in {version}: {where}: {fault.message}") from None
            except kubernetes_validate.SchemaNotFoundError as fault:
                raise Fault(fault.message) from None
    print(f"{len(documents)} documents, {len(newer)} versions from {newer[0]} to {newer[-1]}")


def number(version):
    return [int(part) for part in version.split(".")]


def compare(ours, theirs):
    ours, theirs = ({(d["kind"], d["metadata"]["name"]): ordered(d) for d in all} for all in (ours, theirs))
    if ours.keys() != theirs.keys():
        raise Fault(f"{sorted(ours)} here, {sorted(theirs)} there")
    for key, document in ours.items():
        if document != theirs[key]:
            raise Fault(f"{key}: {document} here, {theirs[key]} there")
    print(f"{len(ours)} documents are the same")


def ordered(value):
    """Lists by name in the order of their names: a merge may put them in any."""
    if isinstance(value, dict):
        return {key: ordered(inner) for key, inner in value.items()}
    if isinstance(value, list):
        inner = [ordered(inner) for inner in value]
        named = all(isinstance(entry, dict) and "name" in entry for entry in inner)
        return sorted(inner, key=lambda entry: entry["name"]) if named else inner
    return value


def without_hashes(text):
    return re.sub(r"(name: watchkeeper)-[a-z0-9]{10}$", r"\1", text, flags=re.MULTILINE)


def main(arguments):
    try:
        documents = render(pathlib.Path(arguments[-1]))
        if arguments[0] == "check":
            check(arguments[1], documents)
        else:
            compare(documents, list(yaml.safe_load_all(without_hashes(sys.stdin.read()))))
    except (Fault, KeyError, OSError, yaml.YAMLError) as fault:
        sys.exit(f"{type(fault).__name__}: {fault}")


main(sys.argv[1:])
