# Completion of nnc for bash: nnc itself lists what the word may become.
_nnc() {
    local line=${COMP_LINE:0:COMP_POINT} word keep c breaks=${COMP_WORDBREAKS//[^=:]/}
    local -a words out
    read -ra words <<<"$line"
    [[ $line != *[[:space:]] ]] || words+=('')
    word=${words[-1]} keep=
    # Readline replaces only what follows the last of these characters.
    [[ -z $breaks ]] || keep=${word%"${word##*["$breaks"]}"}
    COMPREPLY=()
    mapfile -t out < <("${words[0]/#\~/$HOME}" --complete "${words[@]:1}" 2>/dev/null)
    if [[ ${out[0]:-} == files$'\t'* ]]; then
        compopt -o filenames
        c=${out[0]#*$'\t'}
        mapfile -t COMPREPLY < <(compgen -P "${c#"$keep"}" -f -- "${word#"$c"}")
        return
    fi
    for c in "${out[@]}"; do
        c=${c%%$'\t'*}
        COMPREPLY+=("${c#"$keep"}")
    done
    [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace
}
complete -F _nnc nnc
