extension RuntimeState {
  /// Takes an owner's decision over; false: it is the accepted one. Throws `managementRefused` for one that is older, or
  /// another one with the same serial.
  mutating func accept(_ file: ManagementFile, after accepted: ManagementFile?) throws(AppRuntimeError)
    -> Bool
  {
    if let accepted {
      if file.text == accepted.text { return false }
      guard file.serial > accepted.serial else {
        throw AppRuntimeError(
          .managementRefused, path: "management.serial",
          detail: "\(file.serial) is not greater than \(accepted.serial), which was accepted")
      }
    }
    managed = file.text
    if let serial = file.lockSerial {
      if serial > unlocked { remoteLock = .management(serial: serial) }
    } else {
      switch remoteLock {
      case .management, .stateLost: remoteLock = nil
      case .app, .attempts, nil: break
      }
    }
    return true
  }

  /// The unlock code was right.
  mutating func endRemoteLock() {
    if case .management(let serial) = remoteLock { unlocked = max(unlocked, serial) }
    (remoteLock, attempts) = (nil, 0)
  }
}
