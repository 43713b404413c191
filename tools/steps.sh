# Sourced by test and gpu_check: checks as steps that run beside each other, at most $jobs at once. Each
# writes to $logs/NAME.log; $checks, $skipped and $failed count.
checks=0 skipped=0 failed=()
running=()  # the steps that run now, each "NAME PID START"

skip() {  # WHAT WHY
  skipped=$((skipped + 1))
  say "   skip  $1: $2"
}

# verdict NAME STATUS SECONDS COUNT: one line a step; the end of its output where it failed.
verdict() {
  local name=$1 status=$2 seconds=$3 count=$4
  checks=$((checks + count))
  if [ "$status" -eq 0 ]; then
    say "   ok    $name ($count checks, $seconds s)"
  else
    failed+=("$name")
    say "   FAIL  $name ($seconds s); the end of $logs/$name.log:"
    grep -v '^Filters: ' "$logs/$name.log" | tail -n 30 | cut -c 1-400 | sed 's/^/         /'
  fi
}

# catch_cases LOG: test cases that a run of Catch2 reports at its end.
catch_cases() {
  sed -n -e 's/^All tests passed (.* in \([0-9]*\) test cases\{0,1\}).*/\1/p' \
    -e 's/^test cases: *\([0-9]*\) |.*/\1/p' "$1" | tail -n 1
}

# wait_below N: waits until fewer than N steps run, and says how those that ended went.
wait_below() {
  local entry name pid start status count without why left
  while :; do
    left=()
    for entry in "${running[@]}"; do
      read -r name pid start <<<"$entry"
      if kill -0 "$pid" 2>/dev/null; then
        left+=("$entry")
        continue
      fi
      wait "$pid"
      status=$?
      count=$(sed -n 's/^Ran \([0-9]*\) tests\{0,1\} in.*/\1/p' "$logs/$name.log" | tail -n 1)
      [ -n "$count" ] || count=$(catch_cases "$logs/$name.log")
      without=$(sed -n 's/^OK (skipped=\([0-9]*\)).*/\1/p' "$logs/$name.log" | tail -n 1)
      skipped=$((skipped + ${without:-0}))  # of Python's unittest, which counts them among its tests
      why=$(tail -n 1 "$logs/$name.log" | sed -n "s/^$name: skipped, //p")
      if [ "$status" -eq 77 ] && [ -n "$why" ]; then
        skip "$name" "$why"
      else
        verdict "$name" "$status" $((SECONDS - start)) "${count:-1}"
      fi
    done
    running=("${left[@]}")
    [ ${#running[@]} -lt "$1" ] && return
    sleep 0.1
  done
}

# step NAME COMMAND...: one check, or as many as Catch2 or Python's unittest say they ran. It runs
# beside others, as many at once as there are cores. One that cannot run here exits with 77 and ends
# with "NAME: skipped, WHY".
step() {
  local name=$1
  shift
  wait_below "$jobs"
  "$@" >"$logs/$name.log" 2>&1 &
  running+=("$name $! $SECONDS")
}

# catch_list PROGRAM [TAGS]: the names of its test cases, a line each, as a filter of Catch2 wants them.
catch_list() {
  local -a list=(--list-tests --verbosity quiet)  # version 3 of Catch2; version 2 spells it:
  [[ $("$1" --help) != *--list-test-names-only* ]] || list=(--list-test-names-only)
  "$1" "${list[@]}" "${@:2}" | sed 's/[][,\\]/\\&/g'  # they have a meaning there
}

# all_passed NAME: the last line of a script of checks; exits.
all_passed() {
  say
  if [ ${#failed[@]} -gt 0 ]; then
    say "$1: FAILED (${failed[*]}; $checks checks, $skipped skipped)"
    exit 1
  fi
  say "$1: PASSED ($checks checks, $skipped skipped)"
  exit 0
}
