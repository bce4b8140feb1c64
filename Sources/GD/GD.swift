// The vendor's older name of the same module. The first import is the module with the submodules,
// without which explicitly built modules do not find them.
@_exported public import BlackBerryDynamics
@_exported public import GD
