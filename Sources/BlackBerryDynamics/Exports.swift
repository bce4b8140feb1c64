// A file of an existing app has one import line, and uses names of all parts and of Foundation.
// The first import is the C module of the same name, of which this module is the overlay.
@_exported public import BlackBerryDynamics
@_exported public import CGD
@_exported public import Foundation
