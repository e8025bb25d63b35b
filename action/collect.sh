#!/bin/sh
# What a red job keeps of its graphs: for each failing test below graphdbg-pytest/ (of `pytest --graphdbg`), and for each run of
# `graphdbg dump` that is named, a packed run, a page for a browser, the repro and the text of an issue; and a summary of all of them.
#
#     sh collect.sh [-o OUT] [-g COMMAND] [-t SECONDS] [--tensors] [--source] [FOLDER|RUN]...
#
#   FOLDER|RUN  what pytest left, or a run (default: graphdbg-pytest); one that is not there is passed over
#   -o OUT      a new folder (default: graphdbg-ci), not made where nothing is red
#   -g COMMAND  how graphdbg is started there (default: graphdbg, else python3 -m graphdbg)
#   -t SECONDS  what minifying a run may take that `--on-failure minify` has not minified (default: 300; 0: it is not minified)
#   --tensors   values of tensors too: in the pack, and the file beside a repro
#   --source    the lines of your source in pack and page
#
# GITHUB_OUTPUT gets found=N and folder=OUT, GITHUB_STEP_SUMMARY the summary, where they are set. Ends with 0, also where a part
# could not be made, which the summary says; 2: bad usage or OUT is there; 3: OUT cannot be written.
set -u
out=graphdbg-ci command='' seconds=300 tensors='' source='' most=100000
unset GRAPHDBG GRAPHDBG_OPTIONS GRAPHDBG_ARM

refuse() {
  printf 'collect.sh: %s\n' "$2" >&2
  exit "$1"
}

tell() {
  [ -z "${GITHUB_OUTPUT:-}" ] || printf 'found=%s\nfolder=%s\n' "$1" "$out" >>"$GITHUB_OUTPUT"
}

say() {
  printf '%s\n' "$1" >>"$out/summary.md"
}

while [ $# -gt 0 ]; do
  case $1 in
    -o | -g | -t) [ $# -gt 1 ] || refuse 2 "$1 needs a value" ;;
  esac
  case $1 in
    -o) out=$2 && shift ;;
    -g) command=$2 && shift ;;
    -t) seconds=$2 && shift ;;
    --tensors) tensors=--tensors ;;
    --source) source=--source ;;
    -*) refuse 2 "no such option: $1; there are -o -g -t --tensors --source" ;;
    *) break ;;
  esac
  shift
done
case $seconds in '' | *[!0-9]*) refuse 2 "-t takes whole seconds, not $seconds" ;; esac
[ $# -gt 0 ] || set -- graphdbg-pytest

count=0
for place; do
  if [ -f "$place/run.json" ]; then count=$((count + 1)); else
    for test in "$place"/*/; do [ ! -d "$test" ] || count=$((count + 1)); done
  fi
done
if [ "$count" = 0 ]; then
  tell 0
  echo "nothing of graphdbg's is there: $*"
  exit 0
fi
[ ! -e "$out" ] || refuse 2 "$out is there already: delete it at the start of the job, or name another folder with -o"
mkdir -p "$out" 2>/dev/null || refuse 3 "cannot write $out"
if [ -z "$command" ]; then
  if command -v graphdbg >/dev/null; then command=graphdbg; else command='python3 -m graphdbg'; fi
fi

# One packed file of the run $1 into $2; one in which something private was found is deleted.
packed() {
  # shellcheck disable=SC2086  # words
  told=$($command pack "$1" -o "$2" $tensors $source 2>&1 >/dev/null)
  case $? in
    0) return ;;
    1) say "* not kept: ${2##*/}, in which something private was left (graphdbg pack $1 --preview names it)" ;;
    *) say "* not made: ${2##*/} (the log of the job says why)" && printf '%s\n' "$told" >&2 ;;
  esac
  rm -f "$2"
}

# The first repro and issue of the folders that are named.
found() {
  for folder; do
    [ ! -f "$folder/issue.md" ] || [ -f "$into/issue.md" ] || cp "$folder/issue.md" "$into/"
    one=$(find "$folder" -name 'repro*.py' -type f 2>/dev/null | sort | head -n 1)
    if [ -z "$one" ] || [ -f "$into/repro.py" ]; then continue; fi
    cp "$one" "$into/repro.py"
    say "* the repro: \`python ${into#"$out"/}/repro.py\`"
    values=${one%.py}.safetensors
    if [ -f "$values" ] && [ "$tensors" ]; then cp "$values" "$into/"; elif [ -f "$values" ]; then
      say "* it reads ${values##*/}, values of tensors, which was left out (--tensors keeps it)"
    fi
  done
}

# What is kept of the run $2 under the name $1; the rest: folders in which its repro may be.
keep() {
  name=$1 run=$2 into=$out/$1
  shift 2
  while [ -e "$into" ]; do into=$into-more; done
  mkdir -p "$into"
  say "## graphdbg: $name"
  say ''
  [ ! -f "${run%/run}/said.txt" ] || { sed 's/^/    /' "${run%/run}/said.txt" && echo; } >>"$out/summary.md"
  if [ -f "$run/run.json" ]; then
    packed "$run" "$into/run.zip"
    packed "$run" "$into/page.html"
  fi
  found "$@"
  say "* kept: $(cd "$into" && echo *)"
  say ''
  [ ! -f "$into/issue.md" ] || { head -c "$most" "$into/issue.md" && echo; } >>"$out/summary.md"
  if [ -f "$into/issue.md" ] && [ "$(wc -c <"$into/issue.md")" -gt "$most" ]; then
    say "(cut here; all of it: ${into#"$out"/}/issue.md)"
  fi
}

for place; do
  if [ -f "$place/run.json" ]; then
    place=${place%/}
    if [ "$seconds" != 0 ] && [ ! -d "$place-minified" ] && [ ! -d "$place-report" ]; then
      $command minify "$place" -o "$place-minified" --max-time "$seconds" >/dev/null || :
    fi
    keep "${place##*/}" "$place" "$place-report" "$place-minified"
  else
    for test in "$place"/*/; do
      [ -d "$test" ] || continue
      test=${test%/}
      keep "${test##*/}" "$test/run" "$test/minified" "$test/program"
    done
  fi
done
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || head -c 1000000 "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"
tell "$count"
echo "$out: $count of graphdbg's runs, with a summary in $out/summary.md"
