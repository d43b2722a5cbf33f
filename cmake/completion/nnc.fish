# Completion of nnc for fish: nnc itself lists what the word may become.
function __nnc_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l out ($words[1] --complete $words[2..-1] "$word" 2>/dev/null)
    if string match -q -- files\t'*' "$out[1]"
        set -l stem (string replace -r '^files\t' '' -- "$out[1]")
        for path in (__fish_complete_path (string sub -s (math 1 + (string length -- "$stem")) -- "$word"))
            printf "%s\n" "$stem$path"
        end
    else
        printf '%s\n' $out
    end
end
complete -c nnc -f -a '(__nnc_complete)'
