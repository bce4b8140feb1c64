package import ServiceValues

extension AppServer {
  /// Throws `invalidRegistration` as the other initializer does.
  package init(_ wire: WireAppServer) throws(ServicesError) {
    try self.init(host: wire.host, port: Int(wire.port), priority: Int(wire.priority))
  }

  package var wire: WireAppServer {
    .with {
      $0.host = host
      $0.port = UInt32(port)
      $0.priority = UInt32(priority)
    }
  }
}
