@preconcurrency internal import Dispatch
internal import Foundation
internal import Locks

#if canImport(Network)
  internal import Network
#endif

/// Hears when the network of the device changes.
package final class NetworkMonitor: Sendable {
  #if canImport(Network)
    private let monitor = NWPathMonitor()

    package init(routes: Bool = false, onChange: @escaping @Sendable () -> Void) {
      monitor.pathUpdateHandler = { _ in onChange() }
      monitor.start(queue: DispatchQueue(label: "push network"))
    }

    package func stop() { monitor.cancel() }
  #elseif os(Linux)
    private let source: Guarded<(any DispatchSourceRead)?>

    /// Listens to the kernel's routing messages (rtnetlink(7)): links that come and go, addresses, and on request routes.
    package init(routes: Bool = false, onChange: @escaping @Sendable () -> Void) {
      let groups: UInt32 = 0x1 | 0x10 | 0x100 | (routes ? 0x40 | 0x400 : 0)
      let file = socket(Int32(AF_NETLINK), Int32(SOCK_RAW.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
      // sockaddr_nl: family, padding, port (0: the kernel chooses), groups.
      var address = (UInt16(AF_NETLINK), UInt16(0), UInt32(0), groups)
      let isBound = withUnsafeBytes(of: &address) { bytes in
        file >= 0
          && bind(
            file, bytes.baseAddress!.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count)) == 0
      }
      guard isBound else {
        if file >= 0 { close(file) }
        source = Guarded(nil)
        return
      }
      let source = DispatchSource.makeReadSource(fileDescriptor: file, queue: .global())
      source.setEventHandler {
        var buffer = [UInt8](repeating: 0, count: 8192)
        let count = recv(file, &buffer, buffer.count, Int32(MSG_DONTWAIT))
        // There were more messages than the kernel keeps.
        guard count > 0 || count < 0 && errno == ENOBUFS else { return }
        onChange()
      }
      source.setCancelHandler { close(file) }
      source.resume()
      self.source = Guarded(source)
    }

    package func stop() { source.withLock { $0?.cancel() } }
  #endif
}
