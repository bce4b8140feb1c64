/// What the programs print as their version. `Scripts/package` writes that of the tag, or the commit, here.
package let programVersion = "0.1.0-dev"
