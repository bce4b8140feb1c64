public import ContainerStore

/// Why something in a container cannot be done: match with `catch SecureFilesError.noSuchFile`. See ``/ContainerStore/ContainerError``.
public typealias SecureFilesError = ContainerError
