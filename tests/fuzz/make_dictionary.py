"""make_dictionary.py UPS >run_config.dict: words that a configuration of a run may hold: YAML's own marks, and every key that
`ups config keys` knows, with its choices. tests/python/test_config.py compares."""
import json
import re
import subprocess
import sys

MARKS = [": ", "\\x0a- ", "\\x0a  ", "&a ", "*a", "{}", "[]", "null", ".inf", "1e309", "\\x00", "tasks[1]="]
LONGEST = 64  # of a word that libFuzzer takes

words = list(MARKS)
for entry in json.loads(subprocess.run([sys.argv[1], "config", "keys", "--json"], check=True, capture_output=True, text=True).stdout):
    key = entry["key"].replace("[]", "[0]")
    section = re.match("a mapping|a list of .*mappings$", entry["expected"])
    words += [key.rpartition(".")[2].partition("[")[0]] + ([] if section else [key + "="])
    choices = re.fullmatch(r"(?:a list of .*[0-9] |)((?:[a-z0-9_]+, )*[a-z0-9_]+ or [a-z0-9_]+)|.*, or ([a-z]+)", entry["expected"])
    words += re.split(", | or ", choices[1] or choices[2]) if choices else []
print("# Made by make_dictionary.py: YAML's own marks, and the keys of a run with their choices")
print(*(f'"{word}"' for word in dict.fromkeys(words) if len(word) <= LONGEST), sep="\n")
