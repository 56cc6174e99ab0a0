"""Taking over what an Aeron Cluster left: `source` finds it, `survey` checks it, `agreement` compares its members.

`copying` writes a member's directory that is whole or not there. The command is `import_directory`.
"""
