import BlackBerryDynamicsTesting
import Testing

@testable import BlackBerryDynamics

struct FileErrorsTests {
  private let errors = FileErrors(
    paths: NativePaths(home: "/home/user", directories: [("/home/user/Documents", "/Documents")]),
    given: ["/home/user/Documents/a", "relative"])

  private func made(_ error: any Error) -> NSError { errors.of(error) as NSError }

  private static let codes: [(CocoaError.Code, POSIXErrorCode?, Int)] = [
    (.fileNoSuchFile, .ENOENT, 100), (.fileReadNoSuchFile, .ENOENT, 100), (.fileReadUnknown, .EIO, 101),
    (.fileReadCorruptFile, nil, 101), (.fileWriteOutOfSpace, .ENOSPC, 101),
    (.fileReadNoPermission, .EACCES, 102), (.fileWriteNoPermission, .EACCES, 102),
    (.fileWriteVolumeReadOnly, .EROFS, 102), (.fileWriteUnknown, .ENOTEMPTY, 103),
    (.fileReadInvalidFileName, .EINVAL, 104), (.fileWriteInvalidFileName, .ENAMETOOLONG, 104),
    (.fileWriteUnknown, .ENOTDIR, 104), (.fileReadUnknown, .EISDIR, 104), (.fileReadUnknown, .ELOOP, 104),
    (.fileWriteFileExists, .EEXIST, 106), (.fileReadUnsupportedScheme, nil, 109),
    (.fileWriteUnsupportedScheme, nil, 109), (.featureUnsupported, .EOPNOTSUPP, 110),
    (.fileReadUnknown, nil, 500), (.userCancelled, .ECANCELED, 500),
  ]

  @Test(arguments: codes)
  func foundationsCodesHaveTheVendorsBesideThem(
    code: CocoaError.Code, posix: POSIXErrorCode?, number: Int
  ) throws {
    var userInfo: [String: Any] = [NSFilePathErrorKey: "/Documents/a"]
    userInfo[NSUnderlyingErrorKey] = posix.map { POSIXError($0) }
    let error = made(CocoaError(code, userInfo: userInfo))
    #expect(error.domain == GDFileManagerErrorDomain && error.code == number)
    #expect(error.userInfo[NSFilePathErrorKey] as? String == "/home/user/Documents/a")
    let cocoa = try #require(error.userInfo[NSUnderlyingErrorKey] as? CocoaError)
    #expect(cocoa.code == code && cocoa.userInfo[NSFilePathErrorKey] as? String == "/home/user/Documents/a")
    #expect((cocoa.userInfo[NSUnderlyingErrorKey] as? POSIXError)?.code == posix)
    #expect(code ~= error && !(CocoaError.Code.coderInvalidValue ~= error))
    // It is not translated twice.
    #expect(made(error).code == number)
    #expect(made(error).userInfo[NSFilePathErrorKey] as? String == "/home/user/Documents/a")
  }

  @Test func pathsThatNameNothingAreThoseThatWereWritten() {
    let nothing = URL(string: "file:")!
    let error = made(
      CocoaError(.fileNoSuchFile, userInfo: [NSFilePathErrorKey: "", NSURLErrorKey: nothing]))
    #expect(error.userInfo[NSFilePathErrorKey] as? String == "relative")
    #expect(error.userInfo[NSURLErrorKey] == nil)
  }

  @Test func urlsAndBothPathsOfATransferAreNative() {
    let error = made(
      CocoaError(
        .fileWriteFileExists,
        userInfo: [
          NSURLErrorKey: URL(fileURLWithPath: "/Documents/a"), "NSSourceFilePathErrorKey": "/Documents/b",
          "NSDestinationFilePath": "/c",
        ]))
    #expect((error.userInfo[NSURLErrorKey] as? URL)?.path == "/home/user/Documents/a")
    #expect(error.userInfo["NSSourceFilePathErrorKey"] as? String == "/home/user/Documents/b")
    #expect(error.userInfo["NSDestinationFilePath"] as? String == "/home/user/c")
  }

  @Test func otherErrorsStayAsTheyAre() {
    #expect(errors.of(AppRuntimeError(.notAuthorized)) is AppRuntimeError)
    #expect(errors.of(CancellationError()) is CancellationError)
  }

  @Test func everyErrorOfTheContainerHasACode() {
    let known: Set = [100, 101, 102, 103, 104, 106, 110, 500]
    for code in SecureFilesError.Code.allCases {
      #expect(known.contains(FileErrors.of(SecureFilesError(code), path: "/a").code))
    }
  }
}

extension AppTests {
  struct FileErrorTests {
    private func withFiles(_ body: (GDFileManager, String) throws -> Void) async throws {
      try await withGDApp { _, _ in
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        let documents = NSSearchPathForDirectoriesInDomains(.documentDirectory, .userDomainMask, true)[0]
        try body(GDFileManager.default(), documents)
      }
    }

    /// The code, and the path in `userInfo`.
    private func failure(_ body: () throws -> Void) -> (code: Int, path: String?)? {
      do { try body() } catch let error as NSError where error.domain == GDFileManagerErrorDomain {
        return (error.code, error.userInfo[NSFilePathErrorKey] as? String)
      } catch {
        return (-1, "\(error)")
      }
      return nil
    }

    @Test func membersThrowTheVendorsCodesWithNativePaths() async throws {
      try await withFiles { files, documents in
        #expect(files.createFile(atPath: documents + "/a", contents: nil))
        try files.createDirectory(atPath: documents + "/d", withIntermediateDirectories: false)
        let missing = documents + "/gd-no-such-file"
        let url = URL(fileURLWithPath: missing)
        let bodies: [() throws -> Void] = [
          { try files.removeItem(atPath: missing) }, { try files.removeItem(at: url) },
          { try files.copyItem(atPath: missing, toPath: documents + "/b") },
          { try files.copyItem(at: url, to: URL(fileURLWithPath: documents + "/b")) },
          { try files.moveItem(atPath: missing, toPath: documents + "/b") },
          { _ = try files.attributesOfItem(atPath: missing) },
          { _ = try files.contentsOfDirectory(atPath: missing) },
          { _ = try files.subpathsOfDirectory(atPath: missing) },
          { _ = try files.destinationOfSymbolicLink(atPath: missing) },
          { _ = try files.attributesOfFileSystem(forPath: missing) },
          { try files.setAttributes([.posixPermissions: 0o600], ofItemAtPath: missing) },
          { try files.linkItem(atPath: missing, toPath: documents + "/b") },
          { _ = try GDFileManager.getReadStream(missing) }, { _ = try GDFileHandle(forReadingFrom: url) },
          { _ = try GDFileHandle(forWritingTo: url) },
        ]
        for (number, body) in bodies.enumerated() {
          let failure = failure(body)
          #expect(
            failure?.code == 100 && failure?.path == missing, "\(number): \(String(describing: failure))")
        }
        let exists = failure {
          try files.createDirectory(atPath: documents + "/d", withIntermediateDirectories: false)
        }
        #expect(exists?.code == 106 && exists?.path == documents + "/d")
        #expect(failure { _ = try files.contentsOfDirectory(atPath: documents + "/a") }?.code == 104)
        #expect(failure { try files.removeItem(at: URL(string: "https://example.com/a")!) }?.code == 109)
        #expect(failure { _ = try files.destinationOfSymbolicLink(atPath: documents + "/a") }?.code == 104)
        let relative = failure { try files.removeItem(atPath: "a") }
        #expect(relative?.code == 100 && relative?.path == "a")
      }
    }

    @Test func codeThatCatchesFoundationsErrorsGoesOn() async throws {
      try await withFiles { files, documents in
        do {
          try files.removeItem(atPath: documents + "/nothing")
          Issue.record("there is nothing")
        } catch CocoaError.fileNoSuchFile {}
        do {
          _ = try files.attributesOfItem(atPath: documents + "/nothing")
          Issue.record("there is nothing")
        } catch CocoaError.fileNoSuchFile {
          Issue.record("it was read")
        } catch CocoaError.fileReadNoSuchFile {}
        // Foundation's own errors are matched as ever.
        do { throw CocoaError(.fileWriteFileExists) } catch CocoaError.fileWriteFileExists {}
      }
    }

    @Test func aHandleThatIsClosedThrowsTheVendorsError() async throws {
      try await withFiles { files, documents in
        #expect(files.createFile(atPath: documents + "/a", contents: nil))
        let handle = try GDFileHandle(forReadingFrom: URL(fileURLWithPath: documents + "/a"))
        #expect(failure { try handle.write(contentsOf: Data("a".utf8)) }?.code == 101)
        try handle.close()
        #expect(failure { _ = try handle.readToEnd() }?.code == 101)
        #expect(failure { _ = try GDFileHandle().readToEnd() }?.code == 500)
      }
    }
  }
}
