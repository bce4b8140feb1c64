// The vendor's name of the module with the C functions, of which none exists here.
@_exported public import BlackBerryDynamics
@_exported public import GD_C
